"""Where people speak in recordings: Silero's voice activity detector, a scripted TorchScript model that keeps state from chunk to chunk.

    python examples/find_speech.py [--repeat N] [--output FILE.npy] [FILE.wav ...]

The trained model comes inside the PyPI package silero-vad (pip install --no-deps silero-vad), its TorchScript file is all that is used. Without a
file the recordings are the spoken test sounds of alsa-utils. Recordings: 16-bit PCM at 16 kHz or a multiple of it; channels are averaged.
"""

import argparse
import importlib.util
import time
import wave
from pathlib import Path

import numpy as np
import torch

RATE = 16000  # samples per second, and
CHUNK = 512  # samples a call: what the model was made for


def read(path):
    """Samples in [-1, 1] at 16 kHz: float32, one dimension."""
    with wave.open(str(path)) as file:
        rate, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
        data = file.readframes(file.getnframes())
    if width != 2 or rate % RATE:
        raise SystemExit(f"{path}: {8 * width} bits at {rate} Hz; use 16-bit PCM at a multiple of {RATE} Hz")
    samples = np.frombuffer(data, dtype="<i2").astype(np.float32).reshape(-1, channels).mean(1) / 32768
    step = rate // RATE
    return torch.from_numpy(samples[: len(samples) // step * step].reshape(-1, step).mean(1))


def load():
    spec = importlib.util.find_spec("silero_vad")
    if spec is None:
        raise SystemExit("the model is missing: pip install --no-deps silero-vad")
    return torch.jit.load(str(Path(spec.origin).parent / "data" / "silero_vad.jit")).eval()


def spans(probabilities):
    """(first second, last second) of each run of chunks that hold speech."""
    found = []
    for i, p in enumerate(probabilities):
        if p < 0.5:
            continue
        if found and found[-1][1] == i:
            found[-1][1] = i + 1
        else:
            found.append([i, i + 1])
    return [(first * CHUNK / RATE, last * CHUNK / RATE) for first, last in found]


def main():
    parser = argparse.ArgumentParser(description="find speech in recordings")
    parser.add_argument("files", nargs="*", type=Path, help="recordings; default: the spoken test sounds of alsa-utils")
    parser.add_argument("--repeat", type=int, default=1, help="listen so many times")
    parser.add_argument("--output", help="write the probabilities of all chunks here (.npy)")
    args = parser.parse_args()
    files = args.files or sorted(Path("/usr/share/sounds/alsa").glob("*.wav"))
    if not files:
        raise SystemExit("no recordings: name some, or install alsa-utils")

    model = load()
    recordings = [read(path) for path in files]
    heard, times = [], []
    with torch.no_grad():
        for turn in range(args.repeat):
            for path, samples in zip(files, recordings):
                model.reset_states()
                probabilities = []
                for first in range(0, len(samples) - CHUNK + 1, CHUNK):
                    start = time.perf_counter()
                    probabilities.append(model(samples[first : first + CHUNK], RATE).item())
                    times.append(time.perf_counter() - start)
                heard += probabilities
                if turn == 0:
                    found = ", ".join(f"{first:.2f} to {last:.2f} s" for first, last in spans(probabilities))
                    print(f"{path.name}: {len(samples) / RATE:.2f} s, {'speech at ' + found if found else 'no speech'}")
    times = sorted(times[len(times) // 2 :])
    print(f"{len(heard)} chunks of {1e3 * CHUNK / RATE:.0f} ms; the later half took {1e6 * times[len(times) // 2]:.0f} us a chunk (median)")
    if args.output:
        np.save(args.output, np.array(heard))


if __name__ == "__main__":
    main()
