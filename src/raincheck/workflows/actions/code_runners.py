"""Programs that run code or other programs, and environment variables that make programs load code.

Such lists are never complete. The rule for values in commands (`command_values`) adds to them what holds for every
program.
"""

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SCRIPT_RUNNERS = _words("sh ash bash csh dash ksh mksh tcsh yash zsh lua node nodejs perl php pypy python ruby")
"""Programs that run the file that their first argument names, and pass all further arguments to it."""

CODE_RUNNERS = (
    SCRIPT_RUNNERS
    # Shells.
    | _words("elvish fish nu posh powershell pwsh rbash rksh rzsh sash xonsh")
    # Interpreters, and editors and converters whose arguments or input are a language.
    | _words(
        "awk gawk mawk nawk original-awk sed gsed ipython jupyter papermill bpython jruby irb pry deno bun tsx "
        "ts-node coffee php-cgi php-fpm luajit fennel tclsh jimsh slsh wish expect guile racket scheme sbcl clisp "
        "ecl gforth pike rexx regina emacs ghc ghci runghc runhaskell ocaml erl escript elixir iex julia r rscript "
        "octave matlab gnuplot java jshell jjs jrunscript groovy kotlin kotlinc scala clojure clj bb lein swift "
        "swipl gprolog prolog dotnet csi osascript bc dc m4 jq yq mlr ed red ex vi view vim rvim rview vimdiff "
        "nvim gdb lldb pdb bpftrace tex pdftex luatex xetex latex pdflatex lualatex xelatex latexmk gs ghostscript "
        "ps2pdf xsltproc rename prename convert magick identify mogrify composite montage wasmtime wasmer wine"
    )
    # Clients that read commands, some of which start programs.
    | _words(
        "sqlite psql mysql mariadb mongo mongosh redis-cli valkey-cli duckdb clickhouse-client sqlcmd sqlplus isql "
        "usql ftp tnftp ncftp lftp sftp telnet smbclient mail mailx s-nail mutt"
    )
    # Launchers of other programs.
    | _words(
        "env sudo doas su sg runuser pkexec setpriv capsh gosu su-exec setuidgid setlock softlimit chpst envdir "
        "tini dumb-init timeout nice ionice chrt taskset numactl choom prlimit cpulimit setarch linux32 linux64 "
        "stdbuf unbuffer rlwrap time multitime hyperfine nohup setsid daemonize unshare nsenter chroot bwrap "
        "firejail fakeroot fakechroot proot aa-exec busybox toybox command exec eval source xargs pexec parallel "
        "find fd fdfind entr flock logsave watch script strace ltrace valgrind perf msgexec msgfilter run-parts "
        "run-mailcap service socat torify torsocks proxychains distcc ccache sccache ld.so ld-linux ld-linux-x "
        "ld-linux-aarch ld-musl-x ld-musl-aarch open xdg-open gio systemctl systemd-run systemd-nspawn "
        "systemd-inhibit systemd-cat machinectl start-stop-daemon at batch crontab logrotate tmux tmate screen "
        "dtach abduco direnv xvfb-run dbus-run-session fzf"
    )
    # Tools that build, test, install or serve what a file or a package defines.
    | _words(
        "make gmake bmake cmake ctest ninja meson scons rake ant gradle gradlew mvn mvnw sbt bazel just task "
        "invoke inv fab cargo rustup go npm npx pnpm yarn gulp grunt node-gyp jest mocha pip pipx uv uvx poetry "
        "hatch tox nox pytest coverage pre-commit conda mamba gem bundle bundler composer cpan cpanm apt apt-get "
        "dpkg dnf yum rpm apk brew snap flatpak zypper pacman opkg nix nix-shell nix-build nix-env nix-instantiate "
        "guix gunicorn uvicorn hypercorn celery flask django-admin"
    )
    # Tools that run commands elsewhere.
    | _words(
        "ssh sshpass ssh-agent mosh rsh rlogin scp rsync docker docker-compose podman podman-compose nerdctl "
        "kubectl oc helm terraform tofu vagrant virsh multipass wsl ansible ansible-playbook ansible-console "
        "ansible-pull salt salt-call puppet"
    )
)
"""Programs that run what their arguments or their standard input say: code, or another program."""

LOADERS = _words(
    "PATH HOME ENV IFS PS0 PS1 PS2 PS3 PS4 SHELL SHELLOPTS PROMPT_COMMAND ZDOTDIR FPATH CDPATH INPUTRC VISUAL "
    "BROWSER FCEDIT LESS LESSOPEN LESSCLOSE LESSKEY LESSKEYIN MANOPT MAILCAPS MAILRC EXINIT TERMCAP TERMINFO "
    "NLSPATH LOCPATH AWKPATH AWKLIBPATH CLASSPATH COMSPEC GOENV GOFLAGS GOPATH GOROOT GOTOOLDIR GOTOOLCHAIN "
    "GNUPGHOME HGRCPATH HGMERGE KUBECONFIG PGSERVICEFILE PGSYSCONFDIR PSQLRC TAR_OPTIONS TAPE WGETRC AR AS CC "
    "CPP CXX CFLAGS CPPFLAGS CXXFLAGS FFLAGS LDFLAGS"
)
"""Environment variables that make programs load code, or run another program."""

LOADER_PREFIXES = tuple(
    _words(
        "ANSIBLE_ AWS_ BASH_ BUNDLE_ CARGO_ COMPLUS_ COMPOSE_ COR_ CORECLR_ CURL_ DOCKER_ DOTNET_ DYLD_ EMACS ERL_ "
        "GCONV_ GEM_ GIT_ GRADLE_ GTK_ GUILE_ HELM_ JAVA_ _JAVA_ JDK_ JULIA_ LD_ LUA MAKE MAVEN_ MYSQL_ NODE_ "
        "NPM_CONFIG_ npm_config_ OPENSSL_ PERL PHP PIP_ PYTHON R_ RSYNC_ RUBY RUST SSH_ SUDO_ SVN_ SYSTEMD_ TCL "
        "TF_ UV_ VIM XDG_"
    )
)
LOADER_SUFFIXES = ("EDITOR", "PAGER", "ASKPASS", "_RSH", "LIBRARY_PATH", "LOAD_PATH", "PLUGIN_PATH")
PLAIN_VARIABLE = re.compile(r"GIT_(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)")
"""The exceptions from the prefixes."""


def is_code_runner(program: str) -> bool:
    """Return whether a program of this name or path runs what its arguments or its standard input say."""
    return not CODE_RUNNERS.isdisjoint(_names(program))


def is_script_runner(program: str) -> bool:
    """Return whether a program of this name or path runs the file that its first argument names."""
    return not SCRIPT_RUNNERS.isdisjoint(_names(program))


def _names(program: str) -> tuple[str, str]:
    """Return the name of a program, and its name without a version: `python3.12`, `bash-5.2`, `python3-dbg`."""
    name = program.rpartition("/")[2].lower().removesuffix(".exe")
    return name, re.split(r"\d", name, maxsplit=1)[0].rstrip(".-")


def loads_code(variable: str) -> bool:
    """Return whether an environment variable makes programs load code, or run another program."""
    is_loader = variable in LOADERS or variable.startswith(LOADER_PREFIXES) or variable.endswith(LOADER_SUFFIXES)
    return is_loader and PLAIN_VARIABLE.fullmatch(variable) is None
