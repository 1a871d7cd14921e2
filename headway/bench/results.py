Memory = None
