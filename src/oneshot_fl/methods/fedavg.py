"""FedAvg, once.

B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Aguera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017. Used in one shot as the baseline of FedHydra, DENSE and Co-Boosting.

| equation | part | config key |
|---|---|---|
| Alg. 1, server: w = sum_k (n_k / n) w_k | `parts.inits.Average` | `method.init` |
| several architectures: an average of each, which vote | `models.per_architecture` | `method.per_architecture` |
| one initial model for all clients | `models.architecture.Architecture.as_clients_begin` | `clients.initial_weights` |

Deviations: none in the averaging. Batch normalisation's running statistics are averaged like weights, as the
reference codes of the OSFL papers do. One communication round, no server training: `method.source` is none.
Of several architectures the paper knows nothing; FedMHO (Sec. 5.1.2) takes "the voting results of each model
prototype", here the mean of their probabilities (its code: of their logits).
"""
