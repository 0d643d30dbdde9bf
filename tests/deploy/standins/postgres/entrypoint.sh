#!/bin/sh
# What our compose file uses of the official entrypoint, as a user that is not root: POSTGRES_PASSWORD_FILE,
# POSTGRES_INITDB_ARGS, PGDATA and /docker-entrypoint-initdb.d/*.sh.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    mkdir -p "$PGDATA"
    chmod 0700 "$PGDATA"
    # shellcheck disable=SC2086  # several arguments
    initdb --username postgres --pwfile "$POSTGRES_PASSWORD_FILE" $POSTGRES_INITDB_ARGS >/dev/null
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    pg_ctl --wait --options "-c listen_addresses= -c unix_socket_directories=/var/run/postgresql" start >/dev/null
    for script in /docker-entrypoint-initdb.d/*.sh; do
        PGHOST=/var/run/postgresql "$script"
    done
    pg_ctl --wait --mode fast stop >/dev/null
fi
exec "$@" -c "listen_addresses=*" -c unix_socket_directories=/var/run/postgresql
