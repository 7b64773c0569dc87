"""Writes the completions of a tree of commands for bash, zsh and fish."""

import os
import re

# What the values with these names are; words that end so count too.
DIRECTORIES = ("DIR",)
FILES = ("FILE", "FILES", "MODEL", "TRACE", "PLAN", "MODEL|TRACE", "BAG", "RECORDING")


def quoted(text):
    """One word of a shell, in single quotes."""
    return "'" + text.replace("'", "'\\''") + "'"


def takes_value(option):
    """Whether the word after the option is its value; not where the value needs an equals sign."""
    return "<" in option.spec and "[=" not in option.spec and "[<" not in option.spec


def is_kind(option, kinds):
    """Whether the value's name is one of these, or ends with one."""
    name = option.value_name() or ""
    return any(name == kind or name.endswith(("_" + kind, "-" + kind)) for kind in kinds)


def values(option):
    """The possible values."""
    return [value for value, _ in option.values]


def bash(root):
    """Completion for bash; needs no package of its own."""
    paths = [quoted(" ".join(command.words)) for command in root.all() if len(command.words) > 1]
    out = ["# Completion of onbeat for bash. Made by ./dev package.", "_onbeat() {",
           "  local current=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD - 1]} at",
           "  local command=onbeat options='' commands='' chosen='' kind=''",
           "  COMPREPLY=()",
           "  for ((at = 1; at < COMP_CWORD; at++)); do",
           "    if [[ ${COMP_WORDS[at]} == -- ]]; then",
           "      if ((at == COMP_CWORD - 1)); then mapfile -t COMPREPLY < <(compgen -c -- \"$current\")",
           "      else compopt -o default; fi",
           "      return",
           "    fi",
           "    case \"$command ${COMP_WORDS[at]}\" in",
           "      " + " | \\\n      ".join(paths) + ") command+=\" ${COMP_WORDS[at]}\" ;;",
           "    esac",
           "  done",
           "  if [[ $current == = ]]; then current=''; fi",
           "  if [[ $last == = ]]; then last=${COMP_WORDS[COMP_CWORD - 2]}; fi",
           "  case \"$command:$last\" in"]
    for command in root.all():
        for option in filter(takes_value, command.options):
            keys = " | ".join(quoted(f"{' '.join(command.words)}:{name}") for name in option.names())
            if option.values:
                said = f"kind=words chosen={quoted(' '.join(values(option)))}"
            elif is_kind(option, DIRECTORIES):
                said = "kind=directories"
            else:
                said = "kind=files" if is_kind(option, FILES) else "kind=free"
            out.append(f"    {keys}) {said} ;;")
    out += ["  esac", "  case $kind in",
            "    words) mapfile -t COMPREPLY < <(compgen -W \"$chosen\" -- \"$current\"); return ;;",
            "    directories) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$current\"); return ;;",
            "    files) compopt -o default; return ;;",
            "    free) return ;;",
            "  esac", "  case $command in"]
    for command in root.all():
        options = " ".join(name for option in command.options for name in option.names())
        out.append(f"    {quoted(' '.join(command.words))})")
        out.append(f"      options={quoted(options)}")
        out.append(f"      commands={quoted(' '.join(command.summaries))} ;;")
    out += ["  esac",
            "  if [[ $current == -* ]]; then mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")",
            "  elif [[ $commands ]]; then mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$current\")",
            "  else compopt -o default; fi",
            "}", "complete -F _onbeat onbeat"]
    return "\n".join(out) + "\n"


def zsh_option(option):
    """The words of one option for _arguments."""
    names = option.names()
    said = option.one_line().replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    is_repeated = re.search(r"\b(repeat|again)", " ".join(option.text), re.IGNORECASE)
    prefix = "*" if is_repeated else f"({' '.join(names)})" if len(names) > 1 else ""
    value = ""
    if takes_value(option):
        name = (option.value_name() or "").replace(":", "\\:")
        if option.values:
            value = f":{name}:({' '.join(values(option))})"
        elif is_kind(option, DIRECTORIES):
            value = f":{name}:_files -/"
        else:
            value = f":{name}:_files" if is_kind(option, FILES) else f":{name}: "
    for each in names:
        yield quoted(f"{prefix}{each}[{said}]{value}")


def zsh_function(command):
    """The completion of one command, and of those below it."""
    out = [f"{function_name(command)}() {{", "  local context state state_descr line", "  typeset -A opt_args"]
    words = [word for option in command.options for word in zsh_option(option)]
    if command.summaries:
        words += ["'1: :->command'", "'*:: :->rest'"]
    else:
        for number, argument in enumerate(command.arguments, 1):
            is_command = command.runs_a_command() and argument.value_name() == "COMMAND"
            place = "*" if argument.is_repeated() else str(number)
            name = (argument.value_name() or "").replace(":", "\\:")
            words.append(quoted("*::COMMAND: _normal" if is_command else f"{place}:{name}:_files"))
    out.append("  _arguments -C " + " \\\n    ".join(words))
    if command.summaries:
        out += ["  case $state in", "    command)", "      local -a commands=("]
        out += ["        " + quoted(f"{word}:{said}") for word, said in command.summaries.items()]
        out += ["      )", "      _describe -t commands command commands ;;", "    rest)", "      case $line[1] in"]
        out += [f"        {inner.words[-1]}) {function_name(inner)} ;;" for inner in command.commands]
        out += ["      esac ;;", "  esac"]
    return [*out, "}", *(line for inner in command.commands for line in zsh_function(inner))]


def function_name(command):
    """The name of the shell function for a command."""
    return "_" + "_".join(command.words).replace("-", "_")


def zsh(root):
    """Completion for zsh."""
    return "\n".join(["#compdef onbeat", "# Completion of onbeat for zsh. Made by ./dev package.",
                      *zsh_function(root), '_onbeat "$@"']) + "\n"


def fish(root):
    """Completion for fish."""
    paths = " ".join(quoted(" ".join(command.words)) for command in root.all())
    out = ["# Completion of onbeat for fish. Made by ./dev package.",
           "function __onbeat_is_at --description 'The command line has come to this command of onbeat'",
           "  set -l at onbeat",
           "  for word in (commandline -opc)[2..]",
           "    if test \"$word\" = --; return 1; end",
           f"    if contains -- \"$at $word\" {paths}; set at \"$at $word\"; end",
           "  end",
           "  test \"$at\" = \"$argv[1]\"",
           "end",
           "function __onbeat_runs_another --description 'A command to start follows after --'",
           "  contains -- -- (commandline -opc)",
           "end",
           "complete -c onbeat -f",
           "complete -c onbeat -n __onbeat_runs_another -F -a '(__fish_complete_command)'"]
    for command in root.all():
        at = quoted(f'__onbeat_is_at "{" ".join(command.words)}"')
        for word, said in command.summaries.items():
            out.append(f"complete -c onbeat -n {at} -a {quoted(word)} -d {quoted(said)}")
        if command.arguments and not command.summaries:
            out.append(f"complete -c onbeat -n {at} -F")
        out += [f"complete -c onbeat -n {at} {fish_option(option)}" for option in command.options]
    return "\n".join(out) + "\n"


def fish_option(option):
    """The words of one option for fish's `complete`."""
    words = [f"-{'l' if name.startswith('--') else 's'} {name.lstrip('-')}" for name in option.names()]
    if takes_value(option):
        if option.values:
            words.append(f"-x -a {quoted(' '.join(values(option)))}")
        elif is_kind(option, DIRECTORIES):
            words.append("-x -a '(__fish_complete_directories)'")
        else:
            words.append("-r -F" if is_kind(option, FILES) else "-x")
    return " ".join([*words, "-d", quoted(option.one_line())])


def write(root, share):
    """Writes the completions where the shells look for them, below that `share` folder."""
    for path, text in (("bash-completion/completions/onbeat", bash(root)),
                       ("zsh/vendor-completions/_onbeat", zsh(root)),
                       ("fish/vendor_completions.d/onbeat.fish", fish(root))):
        path = os.path.join(share, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
