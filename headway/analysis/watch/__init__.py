"""A live page: the report of a store, served while its runs go on."""
