-- What a checkup asks of a PostgreSQL database. It only reads.

-- name: server
-- Which server it is, whether it takes writes, what time it has, and how many connections it has and may have.
SELECT
    current_setting('server_version'),
    pg_is_in_recovery(),
    current_setting('transaction_read_only')::boolean,
    clock_timestamp(),
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
        - coalesce(current_setting('reserved_connections', true)::bigint, 0);

-- name: closed_schemas
-- The schemas that are there, and that this user may not look into.
SELECT coalesce(array_agg(nspname::text ORDER BY nspname), '{}') FROM pg_namespace
WHERE nspname = ANY(%(schemas)s) AND NOT has_schema_privilege(oid, 'USAGE');

-- name: rights
-- The tables that this user can't read and write, of those that tasks need.
SELECT coalesce(array_agg(name::text ORDER BY name), '{}') FROM unnest(%(tables)s::text[]) AS name
WHERE NOT has_table_privilege(name, 'SELECT')
    OR NOT has_table_privilege(name, 'INSERT')
    OR NOT has_table_privilege(name, 'UPDATE')
    OR NOT has_table_privilege(name, 'DELETE');

-- name: missing_jobs
-- Tools with more tasks in the queue than jobs that could get them to a worker, and how many. What was fetched just now
-- may be about to begin one of them.
WITH waiting AS (
    SELECT namespace, tool, tool_version, count(*) AS tasks FROM tasks WHERE phase = 'queued'
    GROUP BY namespace, tool, tool_version
), jobs AS (
    SELECT args ->> 'namespace' AS namespace, args ->> 'tool' AS tool, args ->> 'version' AS tool_version, count(*) AS jobs
    FROM procrastinate_jobs AS job
    WHERE task_name = %(attempt)s AND (
        status = 'todo' OR (
            status = 'doing' AND EXISTS (
                SELECT FROM procrastinate_events AS event
                WHERE event.job_id = job.id AND event.type = 'started' AND event.at > now() - %(lately)s * interval '1 second'
            )
        )
    )
    GROUP BY 1, 2, 3
)
SELECT namespace, tool, tool_version, tasks - coalesce(jobs, 0) FROM waiting
LEFT JOIN jobs USING (namespace, tool, tool_version)
WHERE tasks > coalesce(jobs, 0)
ORDER BY namespace, tool, tool_version;

-- name: held_jobs
-- How many jobs are with workers that are dead, or that are not even known any more.
SELECT count(*)
FROM procrastinate_jobs AS job LEFT JOIN procrastinate_workers AS worker ON worker.id = job.worker_id
WHERE job.task_name = %(attempt)s AND job.status = 'doing'
    AND coalesce(worker.last_heartbeat, '-infinity') < now() - %(stale)s * interval '1 second';

-- name: workers
-- How many processes take jobs, and how many tasks wait for one.
SELECT
    (SELECT count(*) FROM procrastinate_workers WHERE last_heartbeat > now() - %(stale)s * interval '1 second'),
    (SELECT count(*) FROM tasks WHERE phase = 'queued');
