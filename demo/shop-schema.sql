-- The PostgreSQL half of the shop: tables, and the rows that the snapshot reads.

CREATE TABLE customers (
  id          integer PRIMARY KEY,
  name        text NOT NULL,
  email       text,
  balance     numeric(12,2) NOT NULL,
  vip         boolean NOT NULL,
  created_at  timestamptz NOT NULL
);

CREATE TABLE products (
  sku          text PRIMARY KEY,
  title        text NOT NULL,
  price        numeric(10,2),
  stock        integer,
  added_on     date,
  description  text
);

-- Long descriptions are stored out of line (TOAST), uncompressed. An update that does not
-- touch such a value does not log it: Debezium then writes __debezium_unavailable_value.
ALTER TABLE products ALTER description SET STORAGE EXTERNAL;

INSERT INTO customers VALUES
  (1, 'Ada Lovelace',         'ada@example.org',    120.00, true,  '2024-01-15 09:30:00+00'),
  (2, 'Bob Ross',             'bob@example.org',     35.50, false, '2024-02-01 12:00:00.5+00'),
  (3, 'Chloë Dupont',         'chloe@example.org',    0.00, false, '2024-02-29 23:59:59.999999+00'),
  (4, 'Дмитрий Шостакович',   NULL,                 -12.34, false, '2024-03-10 08:00:00+01'),
  (5, 'Eve "Evil" Mallory',   '',                   999.99, false, '2024-03-31 01:59:59+00'),
  (6, 'Frank O''Hara',        'frank@example.org', 9999999999.99, true, '1999-12-31 23:59:59+00'),
  (7, 'Grace Hopper',         'grace@example.org',   64.00, true,  '2024-04-01 00:00:00+00'),
  (8, '桜 花子',              'sakura@example.org',   0.01, false, '2024-04-02 15:00:00+09');

INSERT INTO products VALUES
  ('MUG-01', 'Mug "Blue Sky", 0.3 l', 9.99,  25,   '2024-02-14', NULL),
  ('POT-01', 'Iron tea pot',          79.00, 5,    '2024-01-20',
     repeat('Cast iron from Morioka, enamelled inside. ', 55)),
  ('SET-01', 'Gift set',              NULL,  NULL, NULL,         NULL),
  ('TEA-01', 'Sencha 🍵',             12.50, 40,   '2024-01-01',
     repeat('Green tea from Uji, steamed, rolled and dried. ', 50)),
  ('TEA-02', 'Earl Grey',             8.90,  120,  '2024-01-01', 'Black tea with bergamot.'),
  ('TIN-01', 'Tea tin',               4.20,  0,    '2024-03-01', '');
