"""How strong our attacks are: ours and theirs on the same network, images, ball and seed, in one process.

    python -m benchmarks.parity --list                                     list the jobs, and which are stored
    python -m benchmarks.parity --jobs 'pyautoattack-*-compact-trades'     run the jobs that are not stored
              --device cuda --samples 512 --engine fast --out results/parity

    judge     one judge for both sides: images are put into the box, labelled in float32 and measured. Both sides
              search in the precision that the command names.
    count     images through the network, forward and backward, counted by hooks on it
    budget    in `equal` jobs ours may spend on a sample what theirs sends for a sample that it does not break (scores),
              or what theirs sent per sample on average (labels)
    rule      standing   accuracy under ours - accuracy under theirs <= so many points, on the same samples
              falls      the same after 5,000 and after 10,000 queries in the authors' counting
              distance   median distance of ours <= 1.05 * median distance of theirs. Images that rounding put back
                         over the boundary are judged a hundredth further out.
              worst      a sample is robust if no stored part broke it; no attack is run again

Theirs runs first, and each side warms up before it is timed. Seconds are kept for a GPU; for a CPU only the ratio of
processor times. There is one file per job. It holds the facts of every sample, and its `verdict` is computed from them.
The networks come with the project. The images are the first ones of the embedded slice of CIFAR-10.
"""
