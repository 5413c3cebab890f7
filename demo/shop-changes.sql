-- The changes in the PostgreSQL shop while the connector runs.
-- The capture leaves a second between paragraphs.

-- A new customer, without an e-mail address.
INSERT INTO customers VALUES (9, 'Iñaki 李', NULL, 0.00, false, '2024-06-01 10:00:00.123456+00');

-- Two updates of one customer. The demo delivers the first one last: the second must stay.
UPDATE customers SET email = 'bob@old.example', balance = 20.00 WHERE id = 2;

UPDATE customers SET email = 'bob.ross@example.org', balance = 15.25 WHERE id = 2;

-- The price rises; the long description is unchanged, so it is not sent.
UPDATE products SET price = 13.00 WHERE sku = 'TEA-01';

UPDATE products SET price = 8.50, stock = stock - 20 WHERE sku = 'TEA-02';

-- One purchase: three rows of two tables in one transaction.
BEGIN;
UPDATE customers SET balance = balance - 79.00 WHERE id = 1;
UPDATE products SET stock = stock - 1 WHERE sku = 'POT-01';
INSERT INTO customers VALUES (10, 'Zoë', '', 5.00, false, '2024-06-02 00:00:00+00');
COMMIT;

-- A customer is deleted: a delete and a tombstone.
DELETE FROM customers WHERE id = 6;

-- The long description itself changes.
UPDATE products SET description = repeat('Cast iron, now with a bamboo handle. ', 65) WHERE sku = 'POT-01';

-- Key change: a delete, a tombstone and a create under the new key.
UPDATE customers SET id = 104 WHERE id = 4;

-- Key change of a product; its long description is not sent.
UPDATE products SET sku = 'TEA-001' WHERE sku = 'TEA-01';

-- Updates under the new keys.
UPDATE customers SET email = 'dmitri@example.org', balance = 0.00 WHERE id = 104;

UPDATE products SET stock = 35 WHERE sku = 'TEA-001';

-- Deleted, and inserted again with the same key.
DELETE FROM customers WHERE id = 5;

INSERT INTO customers VALUES (5, 'Eve Mallory', 'eve@example.org', 0.01, false, '2024-06-03 12:00:00+00');

-- A row that is inserted and deleted in one transaction, and a bonus for every VIP.
BEGIN;
INSERT INTO customers VALUES (11, 'Nobody', NULL, 0.00, false, '2024-06-04 00:00:00+00');
UPDATE customers SET name = 'Still nobody' WHERE id = 11;
UPDATE customers SET balance = balance + 10.00 WHERE vip;
DELETE FROM customers WHERE id = 11;
COMMIT;

-- Rolled back: nothing of this is sent.
BEGIN;
DELETE FROM customers;
ROLLBACK;

-- To NULL, and from NULL.
UPDATE customers SET email = NULL WHERE id = 3;

UPDATE products SET price = 49.90, stock = 3, added_on = '2024-06-05', description = 'Tin, mug and tea.' WHERE sku = 'SET-01';

-- A product is deleted, another inserted.
BEGIN;
DELETE FROM products WHERE sku = 'TIN-01';
INSERT INTO products VALUES ('CUP-01', '湯呑み (cup)', 6.66, 12, '2024-06-05', 'Fits the hand.');
COMMIT;

UPDATE customers SET name = '桜 花子 😀', vip = true, balance = 1234567890.12 WHERE id = 8;
