"""DENSE: data-free one-shot federated learning.

J. Zhang, C. Chen, B. Li, L. Lyu, S. Wu, S. Ding, C. Shen, C. Wu: DENSE: Data-Free One-Shot Federated Learning, NeurIPS
2022. The paper itself was not at hand; the card follows the behaviour of the authors' code
(github.com/zj-jayzhang/DENSE, commit 458c3c4) and what FedHydra (Sec. 3.3, Eqs. 13-15) says of it.

| what | part | config key |
|---|---|---|
| ensemble: mean of client logits | `parts.ensembles.LogitAverage` | `method.ensemble` |
| CE(P, y), weight 1 | `parts.terms.CrossEntropy` | `method.objective.ce` |
| BN statistics of every client layer, lambda1 = 1 | `parts.terms.BatchNormStatistics` | `method.objective.bn` |
| -KL(P, student) where the argmax differ, lambda2 = 1 | `parts.terms.Adversarial` | `method.objective.adv` |
| generator reset every round, batch of the best step | `parts.sources.GeneratorSource` | `method.source` |
| pool of all rounds, one shuffled pass per round | `parts.pools.Pool` | `method.pool.rounds` |
| student: T^2 KL(P, student), T = 20, no CE | `parts.terms.Distillation` | `method.student.kl` |

Deviations from the code:
- The BN loss works; in the released code it is silently zero (no hook is ever registered) and, summed over clients,
  has no 1/m. Here it is Eq. 14's mean over clients.
- z is drawn once a round but not optimised together with the generator.
- No random crop and flip of synthetic images, neither for the generator nor for the student: FedHydra's protocol has
  none, and flipped digits are no digits.
- Images stay float instead of being cut to 8-bit files.
- Learning rates, batch size, T_g and T_G are the protocol's (FedHydra Sec. 4.1.5), shared by all methods, not the
  README's 0.005, 256, 200 and 30.
- Its clients leave training mode of batch normalisation after their first local epoch. Here they train as for all
  methods.
- The reported number is the last round's; the code reports the best test accuracy over rounds.

`method=dense_co_boosting` is the DENSE of Co-Boosting's code, which its tables (and probably FedHydra's) compare with:

| what differs there | config key |
|---|---|
| no BN statistics | `method.objective.bn.weight=0` |
| adversarial term at T = 3 | `method.objective.adv.temperature=3` |
| student: KL at T = 4 | `method.student.kl.temperature=4` |
| weight decay 1e-4, cosine annealing over the rounds | `method.student_optimizer`, `method.student_schedule` |

It also clips gradients to norm 10, which is left out here. FedMHO's code trains DENSE's student at 1e-3
(`protocol=fedmho`); that its DENSE clients train with Adam at 1e-3 is not followed, so that all methods share clients.
"""
