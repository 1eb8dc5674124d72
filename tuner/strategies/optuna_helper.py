"""Optuna for hypertune: one JSON object a line on stdin, one answer a line on stdout. Errors are answers with a key "error".

    {"op": "check", "sampler": WORD}                                                                  ->  {"version"}
    {"op": "open", "storage": URL, "study": NAME, "sampler": WORD, "seed": N, "directions": ["maximize", ...], "names": [...],
     "owner": ID, "kind": {}}
                                                                                 ->  {"version", "trials"}, {"other": KEY of kind}, {"refused": WHY}
    {"op": "drop_unknown", "known": [NUMBER, ...]}                                                    ->  {}
    {"op": "ask", "by_chance": false}                                                                 ->  {"number"}
    {"op": "suggest", "number", "name", "values": [...] or "int"/"float": [low, high], "log", "step"} ->  {"value"}
    {"op": "take", "number"}                                                                          ->  {"taken"}
    {"op": "tell", "number", "values": [...] or null, "constraints": [...], "attrs": {}}              ->  {}

A value of null says that the trial failed. A number in "constraints" above 0 is by how much one does not hold. `owner` is the journal that a
trial is run for, `kind` what makes a study of this name in this storage the same study.
"""

import importlib.util
import json
import sys
import time
import warnings

RACES = ("DuplicatedStudyError", "IntegrityError", "OperationalError", "ProgrammingError", "StorageInternalError")
NEEDS = {"gp": ("scipy", "torch"), "cmaes": ("cmaes",), "qmc": ("scipy",)}


class Session:
    def check(self, message):
        import optuna

        for name in NEEDS.get(message["sampler"], ()):
            if importlib.util.find_spec(name) is None:
                raise ModuleNotFoundError(f"No module named '{name}', which Optuna's {message['sampler']} needs", name=name)
        return {"version": optuna.__version__}

    def open(self, message):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        for category in (optuna.exceptions.ExperimentalWarning, FutureWarning):  # of how this program calls Optuna: nothing to the user
            warnings.simplefilter("ignore", category)
        if message["sampler"] == "cmaes" and len(message["directions"]) > 1:
            return {"refused": "cmaes searches for one objective, not for several"}
        self.optuna, self.owner = optuna, message["owner"]
        for wait in (0.2, 0.4, 0.8, 1.6, None):  # two that make the tables at once
            try:
                self.study = optuna.create_study(storage=self.storage(message["storage"]), study_name=message["study"],
                                                 directions=message["directions"], load_if_exists=True)
                break
            except Exception as problem:
                if wait is None or type(problem).__name__ not in RACES:
                    raise
                time.sleep(wait)
        self.study.set_metric_names(message["names"])  # for optuna-dashboard
        kind = self.study.user_attrs.get("hypertune")
        if kind is None:
            self.study.set_user_attr("hypertune", message["kind"])
        else:
            for key, value in message["kind"].items():
                if kind.get(key) != value:
                    return {"other": key}
        known = self.study.get_trials(deepcopy=False)
        # What a sampler drew before is not stored: a study that goes on must not draw the same again.
        self.main = self.study.sampler = self.sampler(message["sampler"], (message["seed"] + len(known)) % 2**32)
        self.asked = {}
        return {"version": optuna.__version__, "trials": len(known)}

    def storage(self, url):
        if url.startswith("journal:"):
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend

            return JournalStorage(JournalFileBackend(url[len("journal:"):]))
        waits = {"engine_kwargs": {"connect_args": {"timeout": 60}}} if url.startswith("sqlite:") else {}
        return self.optuna.storages.RDBStorage(url, **waits)

    def drop_unknown(self, message):
        for trial in self.study.get_trials(deepcopy=False, states=[self.optuna.trial.TrialState.RUNNING]):
            if trial.user_attrs.get("hypertune_journal") == self.owner and trial.number not in message["known"]:
                self.study.tell(trial.number, state=self.optuna.trial.TrialState.FAIL)
        return {}

    def sampler(self, word, seed):
        samplers = self.optuna.samplers

        def violations(trial):
            return trial.user_attrs.get("constraints", [])

        constrained = {"seed": seed, "constraints_func": violations}
        if word == "tpe":
            return samplers.TPESampler(multivariate=True, group=True, constant_liar=True, warn_independent_sampling=False, **constrained)
        if word == "gp":
            return samplers.GPSampler(**constrained)
        if word in ("nsga2", "nsga3"):
            return (samplers.NSGAIISampler if word == "nsga2" else samplers.NSGAIIISampler)(population_size=20, **constrained)
        if word == "cmaes":
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        return samplers.QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False)

    def ask(self, message):
        self.study.sampler = self.main
        if message["by_chance"]:
            self.study.sampler = self.optuna.samplers.RandomSampler(seed=len(self.study.get_trials(deepcopy=False)))
        trial = self.study.ask()
        trial.set_user_attr("hypertune_journal", self.owner)
        self.asked[trial.number] = trial
        return {"number": trial.number}

    def suggest(self, message):
        trial, name = self.asked[message["number"]], message["name"]
        if "values" in message:
            value = trial.suggest_categorical(name, message["values"])
        elif "int" in message:
            low, high = message["int"]
            value = trial.suggest_int(name, low, high, log=message["log"]) if message["log"] else trial.suggest_int(name, low, high, step=message["step"])
        else:
            low, high = message["float"]
            value = trial.suggest_float(name, low, high, log=message["log"], step=None if message["log"] else message["step"])
        return {"value": value}

    def take(self, message):
        """Another journal may have come to the same point. Of two that did so at once the lower number keeps it: the higher one sees the other's
        point, since points are written before they are looked for; the lower one waits for the other to give way, unless that one
        looked before and has taken it."""
        number, states, until = message["number"], self.optuna.trial.TrialState, time.monotonic() + 10
        mine = self.asked[number]
        while True:
            twins = [one for one in self.study.get_trials(deepcopy=False)
                     if one.number != number and one.params == mine.params and one.user_attrs.get("hypertune_journal") not in (None, self.owner)]
            for one in twins:
                if "hypertune_trial" not in one.user_attrs or not one.state.is_finished():
                    continue
                values = one.values if one.state == states.COMPLETE else None
                self.tell({"number": number, "values": values, "constraints": one.user_attrs.get("constraints", []), "attrs": {}})
                return {"taken": False}
            running = [one for one in twins if one.state == states.RUNNING]
            if any(one.number < number or "hypertune_taken" in one.user_attrs for one in running):
                self.tell({"number": number, "values": None})
                return {"taken": False}
            if not running or time.monotonic() > until:
                mine.set_user_attr("hypertune_taken", True)
                return {"taken": True}
            time.sleep(0.05)

    def tell(self, message):
        self.study.sampler = self.main
        number, states = message["number"], self.optuna.trial.TrialState
        frozen = next((one for one in self.study.get_trials(deepcopy=False) if one.number == number), None)
        if frozen is None or frozen.state.is_finished():
            return {}
        storage, identity = self.study._storage, frozen._trial_id
        storage.set_trial_user_attr(identity, "constraints", message.get("constraints", []))
        for name, value in message.get("attrs", {}).items():
            storage.set_trial_user_attr(identity, name, value)
        trial = self.asked.pop(number, number)
        if message["values"] is None:
            self.study.tell(trial, state=states.FAIL)
        else:
            self.study.tell(trial, message["values"])
        return {}


def main():
    session = Session()
    for line in sys.stdin:
        message = json.loads(line)
        try:
            answer = getattr(session, message["op"])(message)
        except ModuleNotFoundError as problem:
            answer = {"error": str(problem), "missing": problem.name}
        except Exception as problem:
            cause = f" ({problem.__cause__})" if problem.__cause__ else ""  # which driver of a database is missing, say
            answer = {"error": f"{type(problem).__name__}: {problem}{cause}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
