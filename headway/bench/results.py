Memory=None
