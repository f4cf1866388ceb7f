"""FEDCVAE-ENS: clients send decoders, the server trains on what they draw.

C. E. Heinbaugh, E. Luz-Ricca, H. Shao: Data-Free One-Shot Federated Learning Under Very High Statistical Heterogeneity,
ICLR 2023. The paper was not at hand; the card follows what its official code does.

| what | part | config key |
|---|---|---|
| all clients train conditional VAEs | `phases.clients`, `models.cvae` | `clients=all_cvae`, `cvae=fedcvae` |
| decoder k draws n_k / n of the images, labels as it has them | `parts.decoders.shares_drawn` | `method.source.split` |
| noise from N(0, 1) cut off at 3 | `parts.decoders.draw_noise` | `method.source.bound` |
| a classifier from scratch on them, CE, Adam 1e-3 | `parts.terms.LabelCrossEntropy` | `method.student` |

Deviations:
- Batch size and passes are `distill.batch_size` and `distill.rounds` (the code: 32, and 5 or 10).
- Images keep the data set's size and are classified in its normalised space; the code resizes everything to 32x32.
- What FedMHO's tables call FEDCVAE is another one: noise not cut off and `method.source.split=squared_counts`.
"""
