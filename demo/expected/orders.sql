-- One CSV line a row, asked from the database itself; run with --raw --skip-column-names.
SELECT 'id,customer_id,state,total,placed_at,note'
UNION ALL
(SELECT CONCAT_WS(',', id, customer_id, state, total, DATE_FORMAT(placed_at, '%Y-%m-%dT%H:%i:%s.%f'),
   IFNULL(CONCAT('"', REPLACE(note, '"', '""'), '"'), ''))
 FROM orders ORDER BY id LIMIT 1000);
