#!/usr/bin/env bash
# Captures the demo's input again, and exports the expected state from the databases. For Debian 12
# as root with: apt-get install postgresql-15 mariadb-server openjdk-17-jdk-headless curl; and in the
# Python that PYTHON names: pip install pyspark==4.0.2 confluent-kafka. All servers listen on
# 127.0.0.1 only, keep their data in one temporary folder and end with the script.
#
#   demo/capture/recapture.sh          about two minutes once the jars are downloaded
set -euo pipefail

demo=$(cd "$(dirname "$0")/.." && pwd)
PYTHON=${PYTHON:-python3}
work=${WORK:-$(mktemp -d)} # set WORK to keep the jars for the next time
PG=55432 MARIA=53306 KAFKA=59092 CONTROLLER=59093 CONNECT=58083

mkdir -p "$work" && chmod 755 "$work" && cd "$work"
rm -rf kafka pg maria connect.offsets
capture() { "$PYTHON" "$demo/capture/capture.py" "$@"; }
until_true() { for _ in $(seq 120); do if eval "$1"; then return; fi; sleep 0.5; done; echo "gave up on: $1" >&2; exit 1; }
port_open() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
pids=()
stop_all() {
  [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
  wait
}
trap stop_all EXIT

# -- Jars
if [ ! -d jars/canal ]; then
  ivy=$("$PYTHON" -c 'import pyspark; print(pyspark.__path__[0] + "/jars/*")')
  java -cp "$ivy" org.apache.ivy.Main -cache "$work/ivy" -ivy "$demo/capture/ivy.xml" \
    -confs broker worker plugins canal -types jar bundle tar.gz \
    -retrieve "$work/jars/[conf]/[artifact]-[revision](-[classifier]).[ext]" >ivy.log
  mkdir -p plugins && tar xzf jars/plugins/*.tar.gz -C plugins
fi
mkdir -p classes && javac -cp "jars/canal/*" -d classes "$demo/capture/CanalToKafka.java"

# -- Kafka
cat >broker.properties <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$KAFKA,CONTROLLER://127.0.0.1:$CONTROLLER
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$work/kafka
offsets.topic.replication.factor=1
END
java -cp "jars/broker/*" kafka.tools.StorageTool format -t 4L6g3nShT-eMCtK--X86sw -c broker.properties >kafka.log 2>&1
java -Xmx512m -cp "jars/broker/*" kafka.Kafka broker.properties >>kafka.log 2>&1 & pids+=($!)

# -- PostgreSQL, with the rows that the snapshot will read
mkdir pg && chown postgres pg
as_postgres=(setpriv --reuid=postgres --regid=postgres --clear-groups)
bin=/usr/lib/postgresql/15/bin
"${as_postgres[@]}" $bin/initdb -D pg -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync >initdb.log
"${as_postgres[@]}" $bin/postgres -D pg -p $PG -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
  -c wal_level=logical -c fsync=off >postgres.log 2>&1 & pids+=($!)
until_true "port_open $PG"
psql=(psql -q -v ON_ERROR_STOP=1 -h 127.0.0.1 -p $PG -U postgres)
"${psql[@]}" -c "CREATE DATABASE shop" -c "CREATE ROLE dbz LOGIN REPLICATION PASSWORD 'dbz'"
psql+=(-d shop)
"${psql[@]}" -f "$demo/shop-schema.sql" -c "GRANT SELECT ON ALL TABLES IN SCHEMA public TO dbz" \
  -c "CREATE PUBLICATION shop_pub FOR ALL TABLES"

# -- MariaDB, with empty tables. Annotations off: MySQL does not write them by default.
mkdir maria && chown mysql maria
mariadb-install-db --no-defaults --user=mysql --datadir="$work/maria" \
  --auth-root-authentication-method=normal --skip-test-db >maria-install.log
setpriv --reuid=mysql --regid=mysql --clear-groups mariadbd --no-defaults --datadir="$work/maria" \
  --socket="$work/maria/socket" --port=$MARIA --bind-address=127.0.0.1 --server-id=4711 --log-bin=binlog \
  --binlog-format=ROW --binlog-row-image=FULL --binlog-annotate-row-events=OFF >maria.log 2>&1 & pids+=($!)
until_true "port_open $MARIA"
mariadb=(mariadb --no-defaults -S "$work/maria/socket" -u root --default-character-set=utf8mb4)
"${mariadb[@]}" -e "CREATE DATABASE sales; CREATE USER canal@'%' IDENTIFIED BY 'canal';
  GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO canal@'%'"
mariadb+=(sales)
"${mariadb[@]}" <"$demo/sales-schema.sql"

# -- Canal and Debezium
until_true "port_open $KAFKA"
java -Xmx512m -cp "classes:jars/canal/*" CanalToKafka $MARIA $KAFKA sales 'sales\..*' >canal.log 2>&1 & pids+=($!)
cat >worker.properties <<END
bootstrap.servers=127.0.0.1:$KAFKA
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.file.filename=$work/connect.offsets
plugin.discovery=service_load
plugin.path=$work/plugins
listeners=http://127.0.0.1:$CONNECT
END
cat >connector.json <<END
{"name": "shop", "config": {
  "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
  "topic.prefix": "shop",
  "database.hostname": "127.0.0.1", "database.port": "$PG", "database.dbname": "shop",
  "database.user": "dbz", "database.password": "dbz",
  "plugin.name": "pgoutput", "slot.name": "shop",
  "publication.name": "shop_pub", "publication.autocreate.mode": "disabled",
  "provide.transaction.metadata": "true"}}
END
java -Xmx1g -cp "jars/worker/*" org.apache.kafka.connect.cli.ConnectStandalone \
  worker.properties connector.json >connect.log 2>&1 & pids+=($!)
until_true "curl -sf http://127.0.0.1:$CONNECT/connectors/shop/status | grep -q 'RUNNING.*RUNNING'"
until_true "[ \"\$(${psql[*]} -Atc 'SELECT active FROM pg_replication_slots')\" = t ]"
until_true "grep -q 'COM_BINLOG_DUMP' canal.log"
sleep 3

# -- The changes, both databases at once
capture pace "$demo/shop-changes.sql" "${psql[@]}" &
shop=$!
capture pace "$demo/sales-changes.sql" "${mariadb[@]}"
wait $shop
sleep 3

# -- The messages, and the expected state
capture dump 127.0.0.1:$KAFKA shop.jsonl shop.public.customers shop.public.products shop.transaction
capture dump 127.0.0.1:$KAFKA sales.jsonl sales
mkdir -p "$demo/input"
capture spoil shop.jsonl "$demo/input/shop-postgres.debezium.jsonl" --late bob@old.example --broken '"stock":100'
cp sales.jsonl "$demo/input/shop-mysql.canal.jsonl"
(cd "$demo/expected" && "${psql[@]}" -f shop.sql)
for table in orders order_items; do
  "${mariadb[@]}" --raw --skip-column-names <"$demo/expected/$table.sql" >"$demo/expected/$table.csv"
done
wc "$demo"/input/*.jsonl "$demo"/expected/*.csv
