from distrun.agent.protocol import channel
from distrun.agent.protocol.channel import Channel, ChecksummedSender, HEADER, LENGTH, MARK
from distrun.agent.protocol.channel import MAX_FRAME, ProtocolError, encode, encode_body
