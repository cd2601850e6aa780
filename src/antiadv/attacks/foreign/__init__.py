"""Attacks of other libraries, under our oracle, judge and store.

    foolbox:LinfPGD                                 a class of foolbox.attacks
    torchattacks:PGD,options=(steps=40)             a class of torchattacks
    art:ProjectedGradientDescent                    a class of art.attacks.evasion
    pyautoattack:standard                           a version of AutoAttack
    function:(my.module:attack)                     your own function (model, x, y, eps) → images

counting_model.py   the classifier as other code sees it: it counts, and stops at the budget
libraries.py        one class for each library
ours.py             the way back: one of our attacks as foolbox and ART call it

These attacks are not in `ATTACKS`: they break rules that ours keep. They draw from global random numbers, which are
seeded and put back, and some mix the samples of a batch. So their results can depend on the shard size.
"""
