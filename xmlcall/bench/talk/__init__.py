"""The suite `talk`: conversations as people have them, with the demo server and four real ones.

`english.toml` and `chinese.toml` hold the conversations, their turns in order. A turn says

    say       the person's words; `{folder}` stands for the folder of the conversation (see `servers`)
    kind      what sort of turn it is: greeting, question, follow-up, correction, earlier, two-step, knowledge, small talk, thanks
    tools     what has to be called: each entry names one tool, or several of which one will do, as "a|b"; without it, none
    calls     how many calls that needs at least (1)
    may       tools that may be called and need not be
    fails     the tool has to be called and answers with an error
    answer    regular expressions that must all be found in the answer (see `judge` for how it is read)
    not       regular expressions that must not be found in it
    told      a regular expression with one group, found in a result: the answer must contain the captured text
    state     a file of the folder, `path`, in which `has` must be found afterwards
    right     calls that are right, in order, for the stand-in `oracle`; `{folder}` in strings is the folder
    reply     its answer after them; without it, the texts of the results, or any plain sentence where nothing is called

Every other conversation of a language is for tuning, and the others are for reporting, and that never changes: a prompt or
a threshold is chosen on the first, and a figure is published of the second.
"""
