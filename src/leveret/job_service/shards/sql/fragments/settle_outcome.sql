-- The outcome for handle h; c has a row where its job was changed.
CASE WHEN h.n IN (SELECT c.n FROM c) THEN 'done'
        WHEN EXISTS (SELECT FROM items i WHERE i.id = h.id AND {{is_of_topic}}
            AND i.status <> 'dead') THEN 'stale' ELSE 'unknown' END
