"""Vectors -> neighbours -> pairs."""
