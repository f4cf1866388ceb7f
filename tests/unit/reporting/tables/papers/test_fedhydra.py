from oneshot_fl.reporting.tables.papers.fedhydra import asked


def test_the_weights_of_table_6():
    weights = {"method.objective.bn.weight": 0.5, "method.objective.adv.weight": 1.0}
    assert asked("lambda1=0.5 lambda2=1.0", "mnist") == weights
