-- The MySQL half of the shop: orders. Canal has no snapshot, so every row is in the stream.

CREATE TABLE orders (
  id           bigint unsigned NOT NULL PRIMARY KEY,
  customer_id  int NOT NULL,
  state        enum('new','paid','shipped') NOT NULL,
  total        decimal(12,2) NOT NULL,
  placed_at    datetime(3) NOT NULL,
  note         text
) CHARACTER SET utf8mb4;

CREATE TABLE order_items (
  order_id  bigint unsigned NOT NULL,
  line_no   int NOT NULL,
  sku       varchar(20) NOT NULL,
  qty       smallint unsigned NOT NULL,
  price     decimal(10,2) NOT NULL,
  PRIMARY KEY (order_id, line_no)
) CHARACTER SET utf8mb4;
