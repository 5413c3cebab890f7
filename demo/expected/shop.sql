-- The final rows of the PostgreSQL half, exported with psql.
\copy (SELECT id, name, email, balance, vip::text AS vip, to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS created_at FROM customers ORDER BY id) TO 'customers.csv' WITH (FORMAT csv, HEADER)
\copy (SELECT sku, title, price, stock, added_on, description FROM products ORDER BY sku) TO 'products.csv' WITH (FORMAT csv, HEADER)
