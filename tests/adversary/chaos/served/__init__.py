"""What the attacked processes serve: `raincheck serve served/program.py`. Only this folder imports raincheck."""
