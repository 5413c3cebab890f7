-- The changes in the MySQL shop while Canal reads its binlog.
-- The capture leaves a second between paragraphs.

-- Five orders in one statement: one message with five rows.
INSERT INTO orders VALUES
  (1001, 1, 'new',  79.00, '2024-06-02 10:15:00.000', NULL),
  (1002, 2, 'new',  29.98, '2024-06-02 11:00:00.125', 'Gift wrap, please 🎁'),
  (1003, 4, 'new',  25.00, '2024-06-02 12:30:00.999', NULL),
  (1004, 4, 'paid', 12.50, '2024-06-03 08:00:00.000', ''),
  (1005, 6, 'new',   4.20, '2024-06-03 09:45:30.500', 'Line one\nline "two"');

INSERT INTO order_items VALUES
  (1001, 1, 'POT-01', 1, 79.00),
  (1002, 1, 'MUG-01', 2,  9.99),
  (1002, 2, 'TIN-01', 2,  5.00),
  (1003, 1, 'TEA-01', 2, 12.50),
  (1004, 1, 'TEA-01', 1, 12.50),
  (1005, 1, 'TIN-01', 1,  4.20);

-- Paid, then shipped.
UPDATE orders SET state = 'paid' WHERE id = 1001;

UPDATE orders SET state = 'shipped', note = 'Left at the neighbour''s' WHERE id = 1001;

-- An order is cancelled, with its items, in one transaction.
BEGIN;
DELETE FROM order_items WHERE order_id = 1005;
DELETE FROM orders WHERE id = 1005;
COMMIT;

-- Customer 4 became 104 in the other database: two rows, one message.
-- Only the first row's note changes.
UPDATE orders SET customer_id = 104, note = IF(id = 1003, 'moved from account 4', note) WHERE customer_id = 4;

-- TEA-01 became TEA-001.
UPDATE order_items SET sku = 'TEA-001' WHERE sku = 'TEA-01';

-- A line is renumbered (half of the primary key changes) and takes a quantity above 32767.
UPDATE order_items SET line_no = 3, qty = 40000 WHERE order_id = 1002 AND line_no = 2;

UPDATE orders SET total = 200019.98, note = NULL WHERE id = 1002;

-- A later order, written in one transaction.
BEGIN;
INSERT INTO orders VALUES (1006, 8, 'new', 6.66, '2024-06-05 23:59:59.999', '急いでください');
INSERT INTO order_items VALUES (1006, 1, 'CUP-01', 1, 6.66);
UPDATE orders SET state = 'paid' WHERE id = 1006;
COMMIT;
