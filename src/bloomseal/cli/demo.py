import click


@click.command()
def demo():
    pass


__all__ = ["demo"]
