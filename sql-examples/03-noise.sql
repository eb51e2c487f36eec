-- Differential privacy, value by value. The bounds of these columns are encrypted, so the noise of dp_laplace is made in rounds with
-- the key holder; dp_binary needs none.
SET datafusion.explain.logical_plan_only = true;
EXPLAIN SELECT dp_laplace(cost, 1.0) AS cost, dp_binary(smoker, 1.0) AS smoker FROM patients WHERE region = 'east';

SELECT dp_laplace(cost, 1.0) AS cost,
       dp_geometric(born, 2.0) AS born,
       dp_binary(smoker, 1.0) AS smoker,
       dp_exponential(diagnosis, 2.0) AS diagnosis,
       dp_randomized_response(sex, 1.0) AS sex,
       region
FROM patients WHERE region = 'east' ORDER BY region LIMIT 3;

-- `veil inspect noised.veil.parquet` shows the epsilon that each column has spent, and whose noise is still to come.
COPY (
    SELECT dp_laplace(cost, 1.0) AS cost, dp_exponential(diagnosis, 2.0) AS diagnosis, cost AS true_cost, diagnosis AS true_diagnosis, region
    FROM patients
) TO 'noised.veil.parquet';
