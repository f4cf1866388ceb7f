"""FedAvg, once.

B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Aguera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017. Used in one shot as the baseline of FedHydra, DENSE and Co-Boosting.

| equation | part | config key |
|---|---|---|
| Alg. 1, server: w = sum_k (n_k / n) w_k | `parts.inits.average` | `method.init` |
| one initial model for all clients | `phases.clients.ClientPlan.initial_model` | `clients.seed` |

Deviations: none in the averaging. Batch normalisation's running statistics are averaged like weights, as the
reference codes of the OSFL papers do. One communication round, no server training: `method.source` is none.
"""
