-- The final rows of the MySQL half, a CSV line for each; run with --raw --skip-column-names.
SELECT 'order_id,line_no,sku,qty,price'
UNION ALL
(SELECT CONCAT_WS(',', order_id, line_no, sku, qty, price)
 FROM order_items ORDER BY order_id, line_no LIMIT 1000);
