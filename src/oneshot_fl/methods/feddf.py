"""FedDF: ensemble distillation on proxy images, in one shot.

T. Lin, L. Kong, S. U. Stich, M. Jaggi: Ensemble Distillation for Robust Model Fusion in Federated Learning, NeurIPS
2020. The paper was not at hand; the card follows what its official code does (epfml/federated-learning-public-code).

| what | part | config key |
|---|---|---|
| student: mean of the clients of its architecture, else fresh | `parts.inits.AverageWhereAlike` | `method.init` |
| several architectures: a student of each, which vote | `models.per_architecture` | `method.per_architecture` |
| teacher: mean of the logits of all clients | `parts.ensembles.LogitAverage` | `method.ensemble` |
| unlabelled images on the server | `data.proxy`, `parts.sources.ProxySource` | `proxy`, `method.source` |
| the same images in every round | `parts.pools.Pool` | `method.pool` |
| student: KL(softmax(P) to softmax(student)), T = 1 | `parts.terms.Distillation` | `method.student.kl` |
| Adam, 1e-3 | `torch.optim.Adam` | `method.student_optimizer` |
| cosine annealing to 0 | `phases.distill` | `method.student_schedule` |

FedDF is not data-free. What its images are decides what it can do, so it is a choice of its own and recorded in
summary.json: `proxy=noise` (the default: nothing but noise), `proxy=holdout` (images of the clients' own
distribution, taken away from all clients of all methods before the partition), `proxy=dataset proxy.data=NAME`.

Deviations from the code:
- Students of several architectures answer together, by their mean probability; FedMHO's fork reports the mean of their
  accuracies. With `server_model` there is one student, of that architecture.
- A round is one pass over the proxy images, T_g of them; the code takes up to 10,000 batches and stops early by a
  labelled validation set, which a server without data does not have.
- The learning rate is annealed once a round, not once a batch.
- No clipping of gradients (the code's norm is 5).
- Proxy images are normalised like the data set and not augmented.

As others' baseline it runs at their settings: in FedMHO's code Adam at 2e-4 (`protocol=fedmho`), in Co-Boosting's
tables SGD 0.01 with weight decay 1e-4, cosine annealing and T = 4, like every student there (`protocol=co_boosting`).
"""
