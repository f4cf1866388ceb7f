from oneshot_fl.reporting.tables.papers.fedmho import asked


def test_the_weights_of_table_5_are_half_of_the_printed_ones():
    assert asked("beta1=1 beta2=2", "emnist") == {"method.student.kl.weight": 0.5, "method.student.ce.weight": 1.0}
    assert asked("beta1=learnable beta2=learnable", "emnist") is None


def test_without_the_filter_as_many_images_as_it_leaves():
    assert asked("without_kmeans", "emnist") == {"method.pool.nearest": 1.0, "method.source.samples": 9600}
    assert asked("R_th=0.6", "emnist") == {"method.pool.nearest": 0.6}
