-- Read-only health checks of a PostgreSQL database.

-- name: server
-- The version of the server, whether it accepts writes, its clock, and its current and maximum connections.
SELECT
    current_setting('server_version'),
    pg_is_in_recovery(),
    current_setting('transaction_read_only')::boolean,
    clock_timestamp(),
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
        - coalesce(current_setting('reserved_connections', true)::bigint, 0);

-- name: closed_schemas
-- The existing schemas that this user may not use.
SELECT coalesce(array_agg(nspname::text ORDER BY nspname), '{}') FROM pg_namespace
WHERE nspname = ANY(%(schemas)s) AND NOT has_schema_privilege(oid, 'USAGE');

-- name: rights
-- The required tables that this user can't read and write.
SELECT coalesce(array_agg(name::text ORDER BY name), '{}') FROM unnest(%(tables)s::text[]) AS name
WHERE NOT has_table_privilege(name, 'SELECT')
    OR NOT has_table_privilege(name, 'INSERT')
    OR NOT has_table_privilege(name, 'UPDATE')
    OR NOT has_table_privilege(name, 'DELETE');

-- name: missing_jobs
-- Tools with more queued tasks than jobs that could deliver them to a worker, and the difference. A job that was fetched
-- just now counts, because its worker may be about to start a task.
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
-- The number of jobs of dead workers and of workers that are no longer registered.
SELECT count(*)
FROM procrastinate_jobs AS job LEFT JOIN procrastinate_workers AS worker ON worker.id = job.worker_id
WHERE job.task_name = %(attempt)s AND job.status = 'doing'
    AND coalesce(worker.last_heartbeat, '-infinity') < now() - %(stale)s * interval '1 second';

-- name: workers
-- The number of live processes that take jobs, and of queued tasks.
SELECT
    (SELECT count(*) FROM procrastinate_workers WHERE last_heartbeat > now() - %(stale)s * interval '1 second'),
    (SELECT count(*) FROM tasks WHERE phase = 'queued');
