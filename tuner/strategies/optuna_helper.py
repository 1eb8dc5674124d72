"""Optuna for hypertune: one JSON object a line on stdin, one answer a line on stdout. Errors are answers with a key "error".

    {"op": "check", "sampler": WORD}                                                                  ->  {"version"}
    {"op": "open", "storage": URL, "study": NAME, "sampler": WORD, "seed": N, "directions": ["maximize", ...]}  ->  {"version", "trials"}
    {"op": "ask"}                                                                                     ->  {"number"}
    {"op": "suggest", "number", "name", "values": [...] or "int"/"float": [low, high], "log", "step"} ->  {"value"}
    {"op": "tell", "number", "values": [...] or null, "constraints": [...], "attrs": {}}              ->  {}

A value of null says that the trial failed. A number in "constraints" above 0 is by how much one does not hold.
"""

import importlib.util
import json
import sys


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
        self.optuna = optuna
        storage = message["storage"]
        if storage.startswith("journal:"):
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend

            storage = JournalStorage(JournalFileBackend(storage[len("journal:"):]))
        self.study = optuna.create_study(storage=storage, study_name=message["study"], directions=message["directions"], load_if_exists=True)
        known = self.study.get_trials(deepcopy=False)
        # What a sampler drew before is not stored: a study that goes on must not draw the same again.
        self.study.sampler = self.sampler(message["sampler"], (message["seed"] + len(known)) % 2**32)
        self.asked = {}
        return {"version": optuna.__version__, "trials": len(known)}

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
        trial = self.study.ask()
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

    def tell(self, message):
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
            answer = {"error": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
