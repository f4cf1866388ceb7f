from oneshot_fl.reporting.tables.papers.expected import architecture_settings, expected


def test_a_tables_own_command_composed_for_a_method_and_a_data_set():
    wanted = expected("fedmho/table4", "svhn", "fedmho_md")
    assert wanted.values["data.name"] == "svhn"
    assert wanted.values["clients.cvae.epochs"] == 40
    assert wanted.values["method.student_optimizer.lr"] == 5e-5
    assert not [key for key in wanted.values if key.startswith(("budget", "hydra", "logger", "store", "seed"))]


def test_keys_of_the_method_that_follow_others_are_known():
    assert expected("fedhydra/table1", "mnist", "dense").copies["method.source.steps"] == "distill.generator_steps"


def test_an_architecture_by_itself():
    assert architecture_settings("cnn2")["norm"] is True
    assert architecture_settings("cvae_mlp")["latent"] == 2
    assert architecture_settings("of_somebody_else") == {}
