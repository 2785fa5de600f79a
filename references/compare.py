"""Compares two files of logits: relative L2 error, largest difference, and top-1 agreement at clear positions."""

import argparse
import sys

import numpy as np
from safetensors.numpy import load_file


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tested", help="safetensors file with the tensor `logits` [B, T, V]")
    parser.add_argument("reference", help="the same tensor by the reference")
    parser.add_argument(
        "--bound", type=float, default=5e-3, help="maximum relative L2 error (default: %(default)g)"
    )
    options = parser.parse_args()
    tested = load_file(options.tested)["logits"].astype(np.float64)
    reference = load_file(options.reference)["logits"].astype(np.float64)
    if tested.shape != reference.shape:
        sys.exit(f"shapes differ: {list(tested.shape)} and {list(reference.shape)}")
    relative = relative_l2(tested, reference)
    sure, agreeing = top1_agreement(tested, reference, options.bound)
    each = np.linalg.norm(tested - reference, axis=-1) / np.linalg.norm(reference, axis=-1)
    worst = np.unravel_index(each.argmax(), each.shape)
    print(f"relative L2        {relative:.3e} (bound {options.bound:g})")
    print(f"worst position     {each.max():.3e} at sequence {worst[0]}, token {worst[1]}")
    print(f"largest difference {np.abs(tested - reference).max():.3e}")
    print(f"top-1 agreement    {agreeing} of {sure} clear positions, {each.size} positions in total")
    if not relative <= options.bound or agreeing < sure:
        sys.exit("the logits differ")


def relative_l2(tested, reference):
    """|tested - reference| / |reference| over all positions."""
    return np.linalg.norm(tested - reference) / np.linalg.norm(reference)


def top1_agreement(tested, reference, bound):
    """Counts the positions where the top two reference logits are far enough apart, and how many of those agree."""
    best = np.sort(reference, axis=-1)[..., -2:]
    gap = max(0.05, 8 * bound * np.sqrt(np.mean(reference**2)))
    sure = best[..., 1] - best[..., 0] > gap
    agreeing = tested.argmax(-1) == reference.argmax(-1)
    return int(sure.sum()), int((sure & agreeing).sum())


if __name__ == "__main__":
    main()
