"""The playground: a page in which the pretrained models run, `page/`, with its server and its build."""
