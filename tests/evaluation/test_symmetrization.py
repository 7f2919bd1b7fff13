"""Symmetrisation: by hand, against a plain scan of the grid, and bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnjax.evaluation.symmetrization import swap_sides, symmetrize

SIZE = 5
LINKS = st.frozensets(
    st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=12
)
METHODS = (
    *("intersection", "grow-diag", "grow-diag-final-and", "grow-diag-final"),
    "union",
)


def scan_grid(forward, backward, method):
    """The pseudo-code of Koehn et al. 2005, over a grid, target words first."""
    links = set(forward & backward)

    def has_source(source):
        return any(link[0] == source for link in links)

    def has_target(target):
        return any(link[1] == target for link in links)

    grown = True
    while grown:
        grown = False
        for target in range(SIZE):
            for source in range(SIZE):
                if (source, target) not in links:
                    continue
                for down, right in [
                    *((-1, 0), (0, -1), (1, 0), (0, 1)),
                    *((-1, -1), (-1, 1), (1, -1), (1, 1)),
                ]:
                    new = source + right, target + down
                    free = not has_source(new[0]) or not has_target(new[1])
                    if free and new in forward | backward:
                        links.add(new)
                        grown = True
    for direction in (forward, backward) if "final" in method else ():
        for target in range(SIZE):
            for source in range(SIZE):
                taken = has_source(source), has_target(target)
                full = any(taken) if method.endswith("and") else all(taken)
                if (source, target) in direction and not full:
                    links.add((source, target))
    return links


@given(LINKS, LINKS)
def test_as_the_pseudo_code_says(forward, backward):
    for method in ("grow-diag", "grow-diag-final", "grow-diag-final-and"):
        found = symmetrize(forward, backward, method)
        assert found == scan_grid(forward, backward, method), method


@given(LINKS, LINKS)
def test_each_method_adds_to_the_one_before(forward, backward):
    found = [symmetrize(forward, backward, method) for method in METHODS]
    assert found[0] == forward & backward
    assert found[-1] == forward | backward
    for fewer, more in zip(found, found[1:], strict=False):
        if (fewer, more) != (found[2], found[3]):  # not nested: different order
            assert fewer <= more
    assert found[1] <= found[3] <= found[4]


@given(LINKS)
def test_two_equal_directions_stay_as_they_are(links):
    for method in METHODS:
        assert symmetrize(links, links, method) == links


# Rows: source words 0 to 4; columns: target words. b both, f forward, w backward only.
PICTURE = """
b f . . .
w f . . .
. . . . f
. . . w .
. . w . w
"""


def picture_links(letters):
    rows = PICTURE.split("\n")[1:-1]
    return frozenset(
        (source, target)
        for source, row in enumerate(rows)
        for target, letter in enumerate(row.split())
        if letter in letters
    )


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("intersection", {(0, 0)}),
        # Beside (0, 0) come (0, 1), for target 1, and (1, 0), for source 1. Then
        # (1, 1) finds both its words taken, and nothing touches the rest.
        ("grow-diag", {(0, 0), (0, 1), (1, 0)}),
        # (2, 4) of forward first; it takes target 4 from (4, 4). Of backward, (4, 2)
        # comes before (3, 3) and (4, 4).
        ("grow-diag-final-and", {(0, 0), (0, 1), (1, 0), (2, 4), (4, 2), (3, 3)}),
        ("grow-diag-final", {(0, 0), (0, 1), (1, 0), (2, 4), (4, 2), (3, 3)}),
        ("union", picture_links("bfw")),
    ],
)
def test_by_hand(method, expected):
    forward, backward = picture_links("bf"), picture_links("bw")
    assert symmetrize(forward, backward, method) == expected


def test_final_takes_links_of_one_free_word_and_final_and_of_two():
    forward = frozenset({(0, 0), (0, 3)})  # source 0 is taken, target 3 is free
    backward = frozenset({(0, 0), (4, 4)})
    both = {(0, 0), (4, 4)}
    assert symmetrize(forward, backward, "grow-diag-final-and") == both
    assert symmetrize(forward, backward, "grow-diag-final") == both | {(0, 3)}


def test_growing_goes_on_from_what_was_added():
    forward = frozenset({(0, 4), (1, 3), (2, 2), (3, 1)})
    backward = frozenset({(3, 1)})
    assert symmetrize(forward, backward, "grow-diag") == forward


def test_forward_comes_before_backward():
    forward, backward = frozenset({(1, 1)}), frozenset({(0, 1)})
    assert symmetrize(forward, backward, "grow-diag-final-and") == forward
    assert symmetrize(backward, forward, "grow-diag-final-and") == backward


def test_sides_swap():
    assert swap_sides(frozenset({(0, 2), (1, 1)})) == {(2, 0), (1, 1)}


def test_other_names_are_refused():
    with pytest.raises(ValueError, match="one of intersection, .* got 'grow'"):
        symmetrize(frozenset(), frozenset(), "grow")
