"""Train the networks of the zoo on one GPU, several at a time. Every call goes on where the last one stopped.

    python -m tools.train_zoo --sheets DIR --data DATA             unpack and check the image sheets that are there
    python -m tools.train_zoo --data DATA --jobs all --parallel 3  train; results are written to --work/results
    python -m tools.train_zoo --budget-check                       measure images per second, by way of running
    python -m tools.train_zoo --pack --out OUT                     pack what is finished: tar parts in OUT/parts

Each network is trained in a process of its own (start method spawn), with a checkpoint under --work. A job that fails
is tried again in a simpler way of running, and then given up; the other jobs go on. A job waits while its data or its
first phase is missing. Put the parts together with `cat zoo.tar.* | tar x`.
"""
