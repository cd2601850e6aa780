"""The playground: a page on this machine on which one image is attacked while you watch.

choices.py    what can be picked, its bounds, and the check of what a page sent
pictures.py   uploads become images of the network's size; images become pictures for the page
watched.py    an engine that shows every query, and the control that pauses and stops an attack
session.py    one visitor: an image, and at most one attack in a thread
story.py      what the page shows of an attack: pictures, bars, the margin curve, one sentence
share.py      the same as one HTML file without scripts
app.py        the HTTP application, with the checks of Host and Origin
page.html     the page: its style and its script are inside
run.py        uvicorn at 127.0.0.1
"""
