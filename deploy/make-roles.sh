#!/bin/sh
# Run once by the database's image, when its volume is new: a role that owns Lethe's database, and one that may connect
# (what it may read is granted by `lethe migrate --grant-reader lethe_reader`).
set -eu
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username postgres --dbname postgres <<'SQL'
\set owner `cat /run/secrets/lethe`
\set reader `cat /run/secrets/lethe_reader`
CREATE ROLE lethe LOGIN PASSWORD :'owner';
CREATE ROLE lethe_reader LOGIN PASSWORD :'reader';
ALTER ROLE lethe_reader SET default_transaction_read_only = on;
CREATE DATABASE lethe OWNER lethe;
REVOKE ALL ON DATABASE lethe FROM PUBLIC;
GRANT CONNECT ON DATABASE lethe TO lethe_reader;
SQL
