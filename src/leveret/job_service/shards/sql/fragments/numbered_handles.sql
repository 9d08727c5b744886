-- Ids and tokens of handles with their positions.
WITH ORDINALITY AS h(id, token, n)
