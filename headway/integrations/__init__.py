"""Parts that join headway to other packages, which are imported only here and only when they are needed."""
