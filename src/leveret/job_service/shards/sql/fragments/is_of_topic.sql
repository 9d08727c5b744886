-- True if item i belongs to the topic. `|| ''` makes the planner find the job by its id instead of
-- reading the whole topic.
(i.namespace || '') = ns AND (i.topic || '') = tp
