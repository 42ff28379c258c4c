"""Fitted models on disk: a Zarr group with a checksum and without code.

Model files are untrusted input.  The stored size of each array is checked before it is read.  Its
shape, type and range are checked after that.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import stat
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from zarr.abc.store import Store
from zarr.core.sync import sync

from daskclust.core.persistence.schema import Arrays, from_json, saved_entries, to_json
from daskclust.core.storage.outputs import new_group, resolve
from daskclust.core.storage.redact import redact, redact_all
from daskclust.core.storage.stores import INCOMPLETE, local_path
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning, ModelFormatError

#: Version of the format.  Other versions are an error.
FORMAT = 2
_MARK = "daskclust_model"
_KEYS = {"format", "estimator", "version", "params", "omitted", "state", "digest"}
_KINDS = "fib"
#: Parameters with paths of output files.  A model file must not set them.
_NEVER_SAVED = ("checkpoint",)
#: Maximum number of files of a model.  An array has a few files.
_MAX_FILES = 1000
#: Maximum number of bytes of metadata of the group (with the header), and of an array.
_MAX_HEADER, _MAX_METADATA = 2**25, 2**16
_METADATA = "zarr.json"
#: Attempts to read a folder that is being replaced, and seconds between attempts.
_TRIES, _PAUSE = 10, 0.05
_PARAMS = "params."


def registry() -> dict[str, type]:
    """Return the exported estimators by name."""
    import daskclust

    exported = ((name, getattr(daskclust, name)) for name in daskclust.__all__)
    return {
        name: value
        for name, value in exported
        if inspect.isclass(value) and hasattr(value, "_saved_state")
    }


def _loadable() -> dict[str, type]:
    """Return the classes that can be loaded by name: estimators and transformers."""
    import daskclust

    module = daskclust.preprocessing
    return {**registry(), **{name: getattr(module, name) for name in module.__all__}}


# Writing


def _split_params(model: Any) -> tuple[dict[str, Any], dict[str, str], Arrays]:
    """Return JSON parameters, the types of parameters that cannot be saved, and arrays."""
    plain: dict[str, Any] = {}
    omitted: dict[str, str] = {}
    arrays: Arrays = {}
    for name, value in model.get_params(deep=False).items():
        if name in _NEVER_SAVED:
            continue
        if name == "init" and hasattr(value, "get_params"):
            # A model as `init` is replaced by its centers.
            value = np.asarray(getattr(value, "cluster_centers_", getattr(value, "means_", None)))
        if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
            arrays[_PARAMS + name] = value
            continue
        try:
            plain[name] = to_json(value)
        except TypeError:
            omitted[name] = type(value).__name__
    return plain, omitted, arrays


def _state_of(model: Any) -> tuple[dict[str, Any], Arrays]:
    state: dict[str, Any] = {}
    arrays: Arrays = {}
    for name, entry in saved_entries(type(model)).items():
        if not hasattr(model, name):
            if not entry.optional:
                raise AttributeError(f"{type(model).__name__} must have {name}, which it declares.")
            continue
        state[name], entry_arrays = entry.store(name, getattr(model, name))
        arrays.update(entry_arrays)
    return state, arrays


def _as_stored(arrays: Arrays) -> Arrays:
    return {
        name: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        for name, array in arrays.items()
    }


def fingerprint(model: Any) -> str:
    """Return 16 digits that identify a fitted model and its loaded copies."""
    state, arrays = _state_of(model)
    # The times of equal fits differ.
    state.pop("history_", None)
    return _digest(state, _as_stored(arrays))[:16]


def save(
    model: Any, path: Any, *, overwrite: bool = False, attributes: Mapping[str, Any] | None = None
) -> None:
    """Save a fitted model, with `attributes` of the group that are not part of the model."""
    check_is_fitted(model)
    from daskclust._version import __version__

    params, omitted, arrays = _split_params(model)
    state, state_arrays = _state_of(model)
    # Check that the model can be loaded again.
    model._check_sizes()
    arrays = _as_stored({**arrays, **state_arrays})
    meta: dict[str, Any] = {
        "format": FORMAT,
        "estimator": type(model).__name__,
        "version": __version__,
        "params": params,
        "omitted": omitted,
        "state": state,
    }
    meta["digest"] = _digest(meta, arrays)
    with new_group(path, kind="model", overwrite=overwrite) as group:
        for name, array in arrays.items():
            stored = group.create_array(
                name,
                shape=array.shape,
                # Each array is one file of the same size, which is checked before it is read.
                chunks=tuple(max(1, size) for size in array.shape),
                dtype=array.dtype,
                compressors=None,
                filters=None,
                # Chunks are also written if all values are the fill value.
                config={"write_empty_chunks": True},
            )
            stored[...] = array
        group.attrs.update({**redact_all(attributes or {}), _MARK: meta})


def _digest(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 digest of everything that is saved."""
    content = {key: value for key, value in meta.items() if key != "digest"}
    sha = hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode())
    for name in sorted(arrays):
        array = arrays[name]
        sha.update(f"{name} {array.dtype.str} {array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


# Reading


def load(path: Any, *, max_bytes: int = 2**30) -> Any:
    """Load a model that ``model.save(path)`` has written.

    Parameters
    ----------
    path : str, path or zarr store
        Saved model.
    max_bytes : int, default=2**30
        Maximum size in bytes.  Larger models raise an error before they are read.

    Returns
    -------
    estimator
        The fitted estimator, without ``labels_``.  Its predictions are bit-identical to
        those of the saved estimator.

    Raises
    ------
    FileNotFoundError
        `path` does not exist.
    ModelFormatError
        The file is not a model of this version of daskclust, or it is damaged.  Examples are an
        unknown class or parameter, an invalid shape, type or value, a link, or a wrong checksum.

    Warns
    -----
    DaskclustWarning
        Parameters that cannot be saved, such as callables, have their default values.

    Notes
    -----
    Code in the file is never run.  The checksum detects damage, but not manipulation.  So a model
    from an untrusted source is safe to load, but its predictions may be wrong.

    Examples
    --------
    >>> import daskclust
    >>> daskclust.load("no-such-model.zarr")
    Traceback (most recent call last):
        ...
    FileNotFoundError: 'no-such-model.zarr' does not exist; ...
    """
    failed: Exception
    for _ in range(_TRIES):
        before = _folder_of(path)
        try:
            group = _open(path, max_bytes)
            meta, arrays = _read(group, max_bytes)
            return _build(meta, arrays)
        except (ModelFormatError, OSError) as error:
            failed = error
        if before is None:  # the folder may be absent for a moment while it is replaced
            time.sleep(_PAUSE)
        if _folder_of(path) == before:
            break
    else:
        failed = ModelFormatError(
            f"it was replaced {_TRIES} times while it was read, so another process is writing it. "
            "Wait for that process."
        )
    if not isinstance(failed, ModelFormatError):
        raise failed
    raise ModelFormatError(
        f"{redact(path)!r} is not a valid daskclust model: {redact(failed)} Save the model again, "
        "or use another path."
    ) from failed


def _folder_of(path: Any) -> tuple[int, int] | None:
    """Return inode and time of a local folder, to find out if it was replaced, or None."""
    folder = local_path(path)
    try:
        status = None if folder is None else folder.stat()
    except OSError:
        return None
    return None if status is None else (status.st_ino, status.st_mtime_ns)


def _open(path: Any, max_bytes: int) -> zarr.Group:
    folder = local_path(path)
    if folder is not None:
        if not folder.exists():
            raise FileNotFoundError(
                f"{redact(path)!r} does not exist; use the path of a saved model."
            )
        _check_sizes(_sizes_in_folder(folder), max_bytes)
    store: Any
    store, inner = resolve(path) if folder is None else (str(folder), "")
    try:
        if folder is None:
            _check_sizes(_sizes_in_store(store, inner), max_bytes)
        # Consolidated metadata may contradict the arrays.
        return zarr.open_group(store, path=inner, mode="r", use_consolidated=False, zarr_format=3)
    except FileNotFoundError as error:
        raise ModelFormatError("it is not a Zarr group.") from error
    except (OSError, ImportError, ModelFormatError):
        raise
    except Exception as error:  # broken metadata can raise any error
        raise ModelFormatError(f"its metadata cannot be read ({_brief(error)}).") from error


def _check_sizes(sizes: Mapping[str, int], max_bytes: int) -> None:
    """Raise ModelFormatError if a model has too many or too large files."""
    if len(sizes) > _MAX_FILES:
        raise ModelFormatError(f"it has more than {_MAX_FILES} files.")
    if sum(sizes.values()) > max_bytes:
        raise ModelFormatError(
            f"it has {sum(sizes.values())} bytes, more than max_bytes={max_bytes}. Pass a larger "
            "max_bytes if this is correct."
        )
    for name, size in sizes.items():
        limit = _MAX_HEADER if name == _METADATA else _MAX_METADATA
        if Path(name).name == _METADATA and size > limit:
            raise ModelFormatError(f"{name!r} must have at most {limit} bytes, got {size}.")


def _sizes_in_store(store: Store, inner: str) -> dict[str, int]:
    if isinstance(store, zarr.storage.ZipStore):
        # A read returns no more bytes than the declared size.
        with zipfile.ZipFile(store.path) as archive:
            sizes = {item.filename: item.file_size for item in archive.infolist()}
    else:
        sizes = sync(_listed(store, inner))
    return {name.removeprefix(inner).lstrip("/"): size for name, size in sizes.items()}


async def _listed(store: Store, inner: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    async for name in store.list_prefix(inner):
        sizes[name] = await store.getsize(name)
        if len(sizes) > _MAX_FILES:
            break
    return sizes


def _sizes_in_folder(folder: Path) -> dict[str, int]:
    """Return the sizes of files (0 for folders); raise ModelFormatError for links and others."""
    if not folder.is_dir():
        raise ModelFormatError("it must be a folder, got a file.")
    sizes: dict[str, int] = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            item = Path(root) / name
            info = item.lstat()
            is_file = stat.S_ISREG(info.st_mode)
            if not (is_file or stat.S_ISDIR(info.st_mode)):
                raise ModelFormatError(f"{name!r} is neither a file nor a folder.")
            sizes[str(item.relative_to(folder))] = info.st_size if is_file else 0
            if len(sizes) > _MAX_FILES:
                return sizes
    return sizes


def _read(group: zarr.Group, max_bytes: int) -> tuple[dict[str, Any], Arrays]:
    """Return header and arrays of a model.  Sizes are checked before arrays are read."""
    arrays: Arrays = {}
    try:
        meta = group.attrs.asdict().get(_MARK)
        incomplete = group.attrs.get(INCOMPLETE)
        members = {} if incomplete else dict(group.members())
    except OSError:
        raise
    except Exception as error:
        raise ModelFormatError(f"its metadata cannot be read ({_brief(error)}).") from error
    if incomplete:
        raise ModelFormatError("it is incomplete: its writer is still running or was stopped.")
    if not isinstance(meta, dict):
        raise ModelFormatError("it is a Zarr group without a model.")
    version = meta.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise ModelFormatError(
            f"its format {version} is newer than this version of daskclust, which reads {FORMAT}."
        )
    if isinstance(version, int) and version < FORMAT:
        raise ModelFormatError(
            f"its format {version} belongs to an earlier version of daskclust; this version reads "
            f"only {FORMAT}. Fit the model again."
        )
    if version != FORMAT or meta.keys() != _KEYS:
        raise ModelFormatError(f"its header has format {version!r} and keys {sorted(meta)}.")
    total = 0
    for name, member in members.items():
        if not isinstance(member, zarr.Array):
            raise ModelFormatError(f"{name!r} must be an array.")
        total += _stored_bytes(name, member)
        if total > max_bytes:
            raise ModelFormatError(f"its arrays have more than max_bytes={max_bytes} bytes.")
        try:
            arrays[name] = np.asarray(member[...])
        except Exception as error:
            raise ModelFormatError(f"{name!r} cannot be read ({_brief(error)}).") from error
    try:
        digest = _digest(meta, arrays)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"its header is not valid JSON ({_brief(error)}).") from error
    if digest != meta["digest"]:
        raise ModelFormatError("its checksum is wrong: it was changed or is damaged.")
    return meta, arrays


def _stored_bytes(name: str, array: zarr.Array) -> int:
    """Return the size of an array after checking that all its bytes are stored."""
    if array.dtype.kind not in _KINDS or array.ndim > 4:
        raise ModelFormatError(f"{name!r} has dtype {array.dtype} and {array.ndim} dimensions.")
    # Python integers, because a declared size may be arbitrarily large.
    size = math.prod(map(int, array.shape), start=array.dtype.itemsize)
    is_plain = not array.compressors and not array.filters and array.shards is None
    has_one_chunk = tuple(array.chunks) == tuple(max(1, length) for length in array.shape)
    if not (is_plain and has_one_chunk):
        raise ModelFormatError(f"{name!r} has another layout than arrays written by daskclust.")
    try:
        stored = array.nbytes_stored()
    except Exception as error:
        raise ModelFormatError(f"{name!r} cannot be read ({_brief(error)}).") from error
    if size > stored:
        raise ModelFormatError(f"{name!r} declares {size} bytes but has {stored}.")
    return size


def _build(meta: Mapping[str, Any], arrays: Arrays) -> Any:
    """Create the estimator from values that are all checked."""
    classes = _loadable()
    name = meta["estimator"]
    if not isinstance(name, str) or name not in classes:
        raise ModelFormatError(
            f"its class {name!r} is unknown; this version supports {', '.join(sorted(classes))}."
        )
    params, state, omitted = meta["params"], meta["state"], meta["omitted"]
    if not all(isinstance(section, dict) for section in (params, state, omitted)):
        raise ModelFormatError("its header is not the header of a model.")
    model = _with_params(classes[name], params, omitted, arrays)
    entries = saved_entries(classes[name])
    missing = [key for key, entry in entries.items() if not entry.optional and key not in state]
    unknown = sorted(state.keys() - entries.keys())
    if missing or unknown:
        what = [f"lacks {missing}"] * bool(missing) + [f"has unknown {unknown}"] * bool(unknown)
        raise ModelFormatError(f"its state {' and '.join(what)}.")
    sizes: dict[str, int] = {}
    for key, entry in entries.items():
        if key in state:
            try:
                value = entry.restore(key, state[key], arrays, sizes)
            except ModelFormatError:
                raise
            except Exception as error:  # other errors of damaged values
                raise ModelFormatError(f"{key} cannot be read ({_brief(error)}).") from error
            setattr(model, key, value)
    try:
        model._check_sizes()
        model._check_features(model.n_features_in_)
    except Exception as error:  # parameters from a file may be of any type
        raise ModelFormatError(f"it contradicts itself: {_brief(error).rstrip('.')}.") from error
    if arrays:
        raise ModelFormatError(f"it has unknown arrays {sorted(arrays)}.")
    if omitted:
        warn(
            f"Parameters {sorted(omitted)} of the loaded {name} cannot be saved "
            f"({', '.join(map(str, omitted.values()))}) and have their default values.",
            DaskclustWarning,
        )
    return model


def _with_params(
    kind: type, params: Mapping[str, Any], omitted: Mapping[str, Any], arrays: Arrays
) -> Any:
    # JSON has lists but no tuples.  Parameters with several values are tuples.
    read = {key: from_json(value) for key, value in params.items()}
    values = {key: tuple(v) if isinstance(v, list) else v for key, v in read.items()}
    for key in [key for key in arrays if key.startswith(_PARAMS)]:
        values[key.removeprefix(_PARAMS)] = arrays.pop(key)
    expected = kind().get_params(deep=False).keys() - set(_NEVER_SAVED)
    names = values.keys() | omitted.keys()
    if names != expected:
        raise ModelFormatError(
            f"its parameters lack {sorted(expected - names)} and have unknown "
            f"{sorted(names - expected)}."
        )
    model = kind(**values)
    try:
        model._check_parameters()
    except Exception as error:
        raise ModelFormatError(f"its parameters are invalid: {_brief(error)}.") from error
    return model


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]} ..."
