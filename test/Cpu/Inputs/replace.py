"""replace.py IN OUT TEXT BY: writes OUT, in which BY stands for the one TEXT; `@` is a new line."""
import sys

source, target, text, by = sys.argv[1:]
text, by = text.replace("@", "\n"), by.replace("@", "\n")
original = open(source).read()
assert original.count(text) == 1, f"{original.count(text)} times in {source}: {text}"
open(target, "w").write(original.replace(text, by))
