-- Whether item i belongs to the topic. Written with `||` so that the planner finds the job by its id
-- and does not read the whole topic.
(i.namespace || '') = ns AND (i.topic || '') = tp
