"""Cuts a plan into portable pieces of work, for engines that read with many processes.

On the machine that opened the table::

    tasks = [piece.to_bytes() for piece in await scan.pieces(most_pieces=6)]

Anywhere else, for each task::

    for batch in coldparquet.pieces.read_piece_batches(task): ...
"""

from coldparquet.pieces.read import PieceStream, ScanPiece, ScanPieces, close_stores, read_piece, read_piece_batches

__all__ = ["PieceStream", "ScanPiece", "ScanPieces", "close_stores", "read_piece", "read_piece_batches"]
