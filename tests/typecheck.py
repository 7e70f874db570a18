"""How annotations are checked at run time: an int is a float, as PEP 484 says."""

from beartype import BeartypeConf, beartype

typecheck = beartype(conf=BeartypeConf(is_pep484_tower=True))
