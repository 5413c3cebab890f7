-- The final rows of the MySQL half, a CSV line for each; run with --raw --skip-column-names.
SELECT 'id,customer_id,state,total,placed_at,note'
UNION ALL
(SELECT CONCAT_WS(',', id, customer_id, state, total, DATE_FORMAT(placed_at, '%Y-%m-%dT%H:%i:%s.%f'),
   IFNULL(CONCAT('"', REPLACE(note, '"', '""'), '"'), ''))
 FROM orders ORDER BY id LIMIT 1000);
