"""An action type made at run time.

The environments of the tests have no package with an action. rclpy and rcl ask of a type only its
type supports and a few fields, so that those of existing messages do: SendGoal travels as
GetParameterTypes, GetResult as DescribeParameters, the feedback as String, each with the id of its
goal as text. All calls below are those of rclpy's own action server and client.
"""

import ctypes

from action_msgs.msg import GoalStatusArray
from action_msgs.srv import CancelGoal
from builtin_interfaces.msg import Time
from rcl_interfaces.msg import ParameterDescriptor
from rcl_interfaces.srv import DescribeParameters, GetParameterTypes
from rclpy.type_support import check_for_type_support
from std_msgs.msg import String
from unique_identifier_msgs.msg import UUID


class Text:
    """A goal, a result or a piece of feedback."""

    def __init__(self, text=""):
        self.text = text


def _id(text):
    return UUID(uuid=list(bytes.fromhex(text or "00" * 16)))


def _hex(goal_id):
    return bytes(goal_id.uuid).hex()


def _at(index):
    """A property over one of two texts in `names`: the goal's id, or what goes with it."""
    def read(message):
        return (list(message.names) + ["", ""])[index]

    def write(message, text):
        names = (list(message.names) + ["", ""])[:2]
        names[index] = text
        message.names = names

    return read, write


def _id_and_text(message, text):
    """Gives a message with `names` the fields `goal_id` and, if wanted, `text`."""
    read, write = _at(0)
    message.goal_id = property(lambda m: _id(read(m)), lambda m, v: write(m, _hex(v)))
    if text:
        read_text, write_text = _at(1)
        setattr(message, text, property(lambda m: Text(read_text(m)),
                                        lambda m, v: write_text(m, v.text)))


def _split(index):
    """A property over one of the two parts of a String: the goal's id, or the text."""
    def read(message):
        return (message.data.split("|", 1) + [""])[index]

    def write(message, text):
        parts = (message.data.split("|", 1) + [""])[:2]
        parts[index] = text
        message.data = "|".join(parts)

    return read, write


def _descriptor(field, kind):
    """A property over a field of the one descriptor of a response."""
    def read(message):
        return kind(getattr(message.descriptors[0], field))

    def write(message, value):
        if not message.descriptors:
            message.descriptors = [ParameterDescriptor()]
        setattr(message.descriptors[0], field, getattr(value, "text", value))

    return property(read, write)


def _accept(message, accepted):
    message.types = [int(accepted)]


_id_and_text(GetParameterTypes.Request, "goal")
GetParameterTypes.Response.accepted = property(lambda m: bool(m.types and m.types[0]), _accept)
GetParameterTypes.Response.stamp = property(lambda m: Time(), lambda m, v: None)
_id_and_text(DescribeParameters.Request, None)
DescribeParameters.Response.status = _descriptor("type", int)
DescribeParameters.Response.result = _descriptor("name", Text)
_read_id, _write_id = _split(0)
_read_text, _write_text = _split(1)
String.goal_id = property(lambda m: _id(_read_id(m)), lambda m, v: _write_id(m, _hex(v)))
String.feedback = property(lambda m: Text(_read_text(m)), lambda m, v: _write_text(m, v.text))


class _TypeSupport(ctypes.Structure):
    """rosidl_action_type_support_t."""

    _fields_ = [(name, ctypes.c_void_p) for name in
                ("goal", "result", "cancel", "feedback", "status", "hash", "text", "sources")]


def _pointer(kind):
    check_for_type_support(kind)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    capsule = kind.__class__._TYPE_SUPPORT
    return get(capsule, name(capsule))


class _Meta(type):
    """Where rclpy looks for the type support of a type."""

    _TYPE_SUPPORT = None


class Walk(metaclass=_Meta):
    """The action: goal, result and feedback are texts."""

    Goal = Result = Feedback = Text

    class Impl:
        """The types that rclpy sends and receives."""

        SendGoalService = GetParameterTypes
        GetResultService = DescribeParameters
        CancelGoalService = CancelGoal
        FeedbackMessage = String
        GoalStatusMessage = GoalStatusArray


def _make():
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    types = (GetParameterTypes, DescribeParameters, CancelGoal, String, GoalStatusArray)
    # The functions that describe a type ignore their argument: those of String do.
    described = (ctypes.c_void_p * 6).from_address(_pointer(String))[3:]
    support = _TypeSupport(*(_pointer(t) for t in types), *described)
    _Meta.kept = support
    _Meta._TYPE_SUPPORT = make(ctypes.addressof(support), None, None)


_make()
