"""Every picture explains itself, and pyplot is left as it was."""

from bayesfac.report.plots.chain_plots import objective, posterior_pictures
from bayesfac.report.plots.held_out_plots import held_out


def test_pictures_explain_themselves(hostile) -> None:
    (one, point), (two, fit) = hostile.fits.items()
    pictures = [
        *held_out(hostile.fits, hostile.scores),
        objective(one, point, hostile.diagnoses[one]),
    ]
    pictures += posterior_pictures(two, fit, hostile.diagnoses[two], hostile.scores[two])
    titles = " ".join(p.title for p in pictures)
    for part in (
        "Coverage",
        "PIT",
        "Point beside",
        "Trace",
        "Ranks",
        "ESS",
        "Energy",
        "predictive",
        "Objective",
    ):
        assert part in titles
    for picture in pictures:
        assert picture.how.rstrip(".") and picture.finding.level in ("good", "care", "bad")
        png = picture.png()
        assert png.startswith(b"\x89PNG") and 4000 < len(png) < 400_000
        labelled = [a for a in picture.figure.axes if a.has_data()]
        assert labelled and all(axes.get_xlabel() for axes in labelled)


def test_pictures_leave_pyplot_and_its_settings_alone(hostile) -> None:
    import matplotlib.pyplot as plt

    before, settings = plt.get_fignums(), dict(plt.rcParams)
    held_out(hostile.fits, hostile.scores)[0].png()
    name, fit = list(hostile.fits.items())[1]
    posterior_pictures(name, fit, hostile.diagnoses[name])
    assert plt.get_fignums() == before and dict(plt.rcParams) == settings
