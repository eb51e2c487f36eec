-- What the engine sees: clear columns as on any table, encrypted ones as what they are.
SELECT name, born, diagnosis, cost, region FROM patients LIMIT 3;

-- Clear columns filter, group and count as usual.
SELECT region, count(*) > 0 AS has_patients FROM patients GROUP BY region ORDER BY region;

-- Every function on encrypted columns, with its syntax.
SELECT name, section, syntax FROM veil_functions() ORDER BY section, name;
