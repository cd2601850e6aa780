"""How fast our attacks are: ours and theirs on the same network, images and machine, in turn, in one run.

    python -m benchmarks.speed --list          list the jobs, where each is meant to run, and what is stored
    python -m benchmarks.speed --jobs 'autoattack-*' --device cuda --precision tf32 --repeats 3 --within 500
             --samples 512 --queries 2000 --batch 512 --threads 2 --sides ours,compiled,mixed --out results/bench

    sides      theirs as its authors call it; ours through the engine as it is, on a compiled network, or on a compiled
               network that searches with 16-bit numbers inside (`half`, `mixed`)
    time       GPU: wall time with the device synchronised. CPU: only ratios are kept, of processor time on one thread
               and of wall time on several. `others` is the share of the processors that other programs used.
    ratio      theirs / ours in each repeat; its median, minimum and maximum
    setup      what ours needs once (graphs, compilation): a run of two steps less the same run again, as a share of
               its first full run. On a GPU on all, 3/4 and 1/2 of the images; in older files on all of them.
    strength   one judge in float32 for both sides, under parity's rules. Each repeat draws its own random numbers, and
               all repeats count (in older files the first alone). Intervals resample images.
    again      a sample that the search takes for fooled and the judge does not is searched again in float32, within
               the measured time, unless the search was told so. In older files it is always searched again.
    budget     attacks on labels: ours may send what theirs sent per sample. In `least` jobs ours gets the smallest
               share of it with which it comes as close; smaller shares are tried first, untimed.
    overhead   the share of processor time that one attack() of ours spends outside the network's passes, on one thread
    ceiling    CPU: the speed of the network's forward pass as a share of the speed of a large matrix product. No code
               can gain more than that, pass for pass.

A target is met if any side of ours is as fast as the target and as strong as the rule. On a GPU the compiler's cache is
used, so `setup` is what remains after it. Passes count images through the bare network. With the layer, theirs
attacks the authors' structure (`benchmarks/authors.py`), ours the layer of this project, which is also the judge.

A race is stored after every repeat. Its `verdict` is computed from its facts. A stored job is not run again, except for
missing repeats if everything else is as asked; `revisions` names the code of each repeat.
"""
